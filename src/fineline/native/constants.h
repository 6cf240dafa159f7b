// Comparing constants and looking up dict keys without ever running Python code.
#pragma once

#include "object.h"

namespace fineline {

// Whether comparing `value` with an object of its type runs no Python code and gives the same answer for ever.
bool is_plain_constant(PyObject* value);

// The meaning of an `eq` step: same type, equal value, floats bit by bit. `Python` for types only Python can compare.
Verdict same_constant(PyObject* a, PyObject* b);

// `*value` becomes the borrowed value under `key`. `Fail` is a missing key; `Python` means that a lookup could call an `__eq__` written
// in Python. `hash` is the key's.
Verdict find_key(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value);

}  // namespace fineline
