// A relation between sizes and numbers: a stack machine over 64-bit integers and doubles, which never runs Python.
#pragma once

#include <memory>
#include <vector>

#include "object.h"

namespace fineline {

class Relation;
using RelationPtr = std::shared_ptr<const Relation>;

// Reads the payload of a `relation` step, and the registers that its leaves are in, one each; null if it is malformed.
RelationPtr parse_relation(PyObject* payload, std::vector<int>& registers);

// What guards.postfix.run computes. `Python` if a leaf is a tensor that answers for its sizes through code of its own.
Verdict relation_holds(const Relation& relation, const std::vector<int>& leaves, PyObject* const* registers);

}  // namespace fineline
