// One step of a guard program, parsed, and its evaluation by value.
#pragma once

#include <vector>

#include "ambient.h"
#include "object.h"
#include "relation.h"
#include "tensor_spec.h"

namespace fineline {

enum class Op : uint8_t {
  Root, Pin, Dict, Key, Index, Cell, Member, TypeAttr,  // access steps, in the order of guards/steps.py
  Is, Type, Eq, Len, Keys, Absent, TypeLacks, Function, Same, Distinct, Tensor, Storages, Ambient, Weak, SetEq, Predicate,
  Relation,
};

inline bool is_access(Op op) { return op <= Op::TypeAttr; }

// Everything borrowed here is owned by the tuple of steps that the program keeps.
struct Step {
  Op op;
  bool python = false;  // only Python can evaluate this step, whatever the value
  int dst = -1;
  int src = -1;
  PyObject* tuple = nullptr;  // the step as it was given
  PyObject* payload = nullptr;
  Py_ssize_t number = 0;         // root: position; index: index; len: length; member: offset of the field; distinct: how many are `ones`
  Py_hash_t hash = -1;           // key, absent
  PyTypeObject* type = nullptr;  // type, type_attr, type_lacks, tensor; member: class of the descriptor
  PyObject* name = nullptr;      // type_attr, type_lacks
  bool null_is_none = false;     // member: what an empty field reads as
  TensorSpecPtr tensor;          // tensor; null if only Python can tell
  RelationPtr relation;          // relation
  std::vector<int> registers;    // same: the other register; distinct, storages: all of them; relation: of the leaves
  std::vector<int> pattern;      // storages
  std::optional<AmbientPicture> passed, failed;  // ambient: the pictures that last passed and failed
};

// Up to so many objects are compared with each of the others: that takes less time than a table.
constexpr size_t kFew = 8;

// Whether positions share keys just as the pattern says, which gives for each the first that has the same key.
bool shared_as(const std::vector<const void*>& keys, const std::vector<int>& pattern);

// Fills `step` from a step tuple, apart from the registers' numbers. Sets a Python error and returns false if it is malformed.
bool parse_step(PyObject* tuple, Step& step);

// Evaluates a step on registers that hold borrowed references. Runs no Python code, collects no garbage, sets no error and does not
// release the GIL: what Python would be needed for comes back as `Verdict::Python`.
Verdict evaluate_step(const Step& step, PyObject** registers, PyObject* const* roots);

// Evaluates any step, in Python where need be; what an access step puts in its register is owned by `owned`, too. -1 with an error set if
// Python raised, 0 if the step failed, 1 if it passed.
int evaluate_step_anyhow(Step& step, PyObject** registers, PyObject* const* roots, std::vector<Ref>& owned);

// Whether the picture of the thread and process agrees with an `ambient` step, asking Python where it cannot tell. -1 with an error
// set, 0, 1.
int check_ambient(Step& step);

// Looks up what this file needs of Python, once. Not when the module is made: what it needs imports the module for `is_a`.
bool init_steps();

}  // namespace fineline
