#include "kinds.h"

namespace fineline {

namespace {

// -1: an error is set.
int matches(PyTypeObject* type, PyObject* kinds) {
  if (PyType_Check(kinds)) return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(kinds));
  if (PyTuple_Check(kinds)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kinds); ++i) {
      const int found = matches(type, PyTuple_GET_ITEM(kinds, i));
      if (found != 0) return found;
    }
    return 0;
  }
  return PyObject_IsSubclass(reinterpret_cast<PyObject*>(type), kinds);  // a union of types
}

}  // namespace

PyObject* is_a(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 2) {
    PyErr_Format(PyExc_TypeError, "is_a() takes an object and what it may be, not %zd arguments", nargs);
    return nullptr;
  }
  const int found = matches(Py_TYPE(args[0]), args[1]);
  return found < 0 ? nullptr : PyBool_FromLong(found);
}

}  // namespace fineline
