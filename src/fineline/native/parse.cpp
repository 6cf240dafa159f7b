// From a step tuple to a parsed step.
#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <string_view>

#include "constants.h"
#include "step.h"

namespace fineline {

namespace {

constexpr std::array<std::string_view, 25> kNames = {
    "root", "pin", "dict", "key", "index", "cell", "member", "type_attr", "is", "type", "eq", "len", "keys", "absent",
    "type_lacks", "function", "same", "distinct", "tensor", "storages", "ambient", "weak", "set_eq", "predicate", "relation"};

bool parse_register(PyObject* number, int& out) {
  long value = PyLong_AsLong(number);
  if (value == -1 && PyErr_Occurred()) return false;
  if (value < INT_MIN || value > INT_MAX) return refuse(PyExc_OverflowError, "there is no register %ld", value);
  out = static_cast<int>(value);
  return true;
}

bool parse_registers(PyObject* numbers, std::vector<int>& out) {
  if (!PyTuple_Check(numbers)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
    out.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(numbers, i))));
  }
  return !PyErr_Occurred();
}

bool parse_class_and_name(Step& step) {
  PyObject* pair = step.payload;
  if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
  step.name = PyTuple_GET_ITEM(pair, 1);
  if (!PyType_Check(PyTuple_GET_ITEM(pair, 0)) || !PyUnicode_CheckExact(step.name)) return false;
  step.type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(pair, 0));
  return true;
}

// Attributes whose getters do nothing but read a pointer in the object.
struct PlainGetter {
  PyTypeObject* type;
  const char* name;
  size_t offset;
};

const PlainGetter* plain_getter(PyObject* descriptor) {
  static const PlainGetter getters[] = {
      {&PyFunction_Type, "__code__", offsetof(PyFunctionObject, func_code)},
      {&PyFunction_Type, "__defaults__", offsetof(PyFunctionObject, func_defaults)},
      {&PyFunction_Type, "__kwdefaults__", offsetof(PyFunctionObject, func_kwdefaults)},
      {&PyType_Type, "__mro__", offsetof(PyTypeObject, tp_mro)},  // a member up to CPython 3.12
  };
  if (Py_TYPE(descriptor) != &PyGetSetDescr_Type) return nullptr;
  for (const PlainGetter& getter : getters) {
    if (PyDescr_TYPE(descriptor) == getter.type && PyUnicode_CompareWithASCIIString(PyDescr_NAME(descriptor), getter.name) == 0) {
      return &getter;
    }
  }
  return nullptr;
}

// A member that is a plain pointer in the object can be read in place: slots, a method's `__self__`, a function's `__closure__`, and
// what plain getters read.
void parse_member(Step& step) {
  step.python = true;
  if (Py_TYPE(step.payload) == &PyMemberDescr_Type) {
    const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(step.payload)->d_member;
    step.python = (member->type != T_OBJECT && member->type != T_OBJECT_EX) || (member->flags & PY_AUDIT_READ);
    step.null_is_none = member->type == T_OBJECT;
    step.number = member->offset;
    step.type = PyDescr_TYPE(step.payload);
  } else if (const PlainGetter* getter = plain_getter(step.payload)) {
    step.number = static_cast<Py_ssize_t>(getter->offset);
    step.type = getter->type;
    step.null_is_none = true;
    step.python = false;
  }
}

// The part that differs by operation; false if the payload is not what the operation takes.
bool parse_payload(Step& step) {
  PyObject* payload = step.payload;
  switch (step.op) {
    case Op::Root:
    case Op::Index:
    case Op::Len:
      step.number = PyLong_AsSsize_t(payload);
      return !PyErr_Occurred();
    case Op::Key:
    case Op::Absent:
      step.hash = PyObject_Hash(payload);
      step.python = step.hash == -1;  // a miss, when it comes to that
      PyErr_Clear();
      return true;
    case Op::Member:
      parse_member(step);
      return true;
    case Op::TypeAttr:
    case Op::TypeLacks:
      return parse_class_and_name(step);
    case Op::Type:
      step.type = reinterpret_cast<PyTypeObject*>(payload);
      return PyType_Check(payload);
    case Op::Eq:
      step.python = !is_plain_constant(payload);
      return true;
    case Op::Keys:
      step.python = !is_plain_constant(payload);
      return PyTuple_CheckExact(payload);
    case Op::Function:
      return PyTuple_CheckExact(payload) && PyTuple_GET_SIZE(payload) == 3;
    case Op::Same:
      step.registers.push_back(static_cast<int>(PyLong_AsLong(payload)));
      return !PyErr_Occurred();
    case Op::Distinct:
      if (!PyTuple_CheckExact(payload) || PyTuple_GET_SIZE(payload) != 2) return false;
      if (!parse_registers(PyTuple_GET_ITEM(payload, 0), step.registers)) return false;
      step.number = static_cast<Py_ssize_t>(step.registers.size());
      return parse_registers(PyTuple_GET_ITEM(payload, 1), step.registers);
    case Op::Storages:
      if (!PyTuple_CheckExact(payload) || PyTuple_GET_SIZE(payload) != 2) return false;
      return parse_registers(PyTuple_GET_ITEM(payload, 0), step.registers) &&
          parse_registers(PyTuple_GET_ITEM(payload, 1), step.pattern) && step.registers.size() == step.pattern.size();
    case Op::Tensor:
      step.tensor = parse_tensor_spec(payload);
      step.python = !step.tensor;
      if (step.tensor) step.type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(payload, 0));
      return true;
    case Op::Relation:
      step.relation = parse_relation(payload, step.registers);
      if (!step.relation) PyErr_Clear();
      return step.relation != nullptr;
    case Op::Weak:
      return PyWeakref_CheckRef(payload);
    case Op::Ambient:
    case Op::SetEq:
    case Op::Predicate:
      step.python = true;
      return step.op != Op::Predicate || (PyTuple_CheckExact(payload) && PyTuple_GET_SIZE(payload) == 2);
    default:
      return true;
  }
}

}  // namespace

bool parse_step(PyObject* tuple, Step& step) {
  // Not by `PyArg_ParseTuple`, which took a third of the time that it takes to make a program.
  if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) != 4) return refuse(PyExc_TypeError, "a guard step must be a tuple (op, dst, src, payload)");
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(tuple, 0), &length);
  if (!text) return false;
  if (!parse_register(PyTuple_GET_ITEM(tuple, 1), step.dst) || !parse_register(PyTuple_GET_ITEM(tuple, 2), step.src)) return false;
  std::string_view name(text, static_cast<size_t>(length));
  auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return refuse(PyExc_ValueError, "unknown guard step '%s'", text);
  step.tuple = tuple;
  step.payload = PyTuple_GET_ITEM(tuple, 3);
  step.op = static_cast<Op>(found - kNames.begin());
  if (parse_payload(step)) return true;
  return !PyErr_Occurred() && refuse(PyExc_ValueError, "guard step '%s' cannot have the payload %R", text, step.payload);
}

}  // namespace fineline
