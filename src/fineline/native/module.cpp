// The extension module fineline._native and its functions.
#include "ambient.h"
#include "dict_stamp.h"
#include "identity.h"
#include "layout.h"
#include "operators.h"
#include "tensor_spec.h"
#include "types.h"

namespace {

PyObject* set_rules(PyObject*, PyObject* args) {
  unsigned long long process = 0, thread = 0;
  if (!PyArg_ParseTuple(args, "KK", &process, &thread)) return nullptr;
  fineline::set_rules(process, thread);
  Py_RETURN_NONE;
}

PyObject* picture_ambient(PyObject*, PyObject*) {
  std::optional<fineline::AmbientPicture> picture = fineline::picture_ambient();
  if (!picture) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(picture->data()), sizeof *picture);
}

PyObject* any_foreign(PyObject*, PyObject* tensors) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); i++) {
    if (fineline::is_foreign(PyTuple_GET_ITEM(tensors, i))) Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

// Whether a type is one of `kinds`. -1: an error is set.
int matches(PyTypeObject* type, PyObject* kinds) {
  if (PyType_Check(kinds)) return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(kinds));
  if (!PyTuple_Check(kinds)) return PyObject_IsSubclass(reinterpret_cast<PyObject*>(type), kinds);  // a union of types
  int found = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kinds) && found == 0; i++) found = matches(type, PyTuple_GET_ITEM(kinds, i));
  return found;
}

PyObject* is_a(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 2) return PyErr_Format(PyExc_TypeError, "is_a() takes an object and what it may be, not %zd arguments", nargs);
  int found = matches(Py_TYPE(args[0]), args[1]);
  return found < 0 ? nullptr : PyBool_FromLong(found);
}

// Also of one letter, of which Python itself keeps one object each. Of what is empty, the object itself.
PyObject* another(PyObject*, PyObject* text) {
  if (PyBytes_CheckExact(text)) {
    PyObject* made = PyBytes_FromStringAndSize(nullptr, PyBytes_GET_SIZE(text));
    if (made != nullptr) std::memcpy(PyBytes_AS_STRING(made), PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text));
    return made;
  }
  if (!PyUnicode_CheckExact(text)) return PyErr_Format(PyExc_TypeError, "another() takes a str or bytes, not %.100s", Py_TYPE(text)->tp_name);
  Py_ssize_t length = PyUnicode_GetLength(text);
  PyObject* made = PyUnicode_New(length, PyUnicode_MAX_CHAR_VALUE(text));
  if (made != nullptr && length > 0 && PyUnicode_CopyCharacters(made, 0, text, 0, length) < 0) Py_CLEAR(made);
  return made;
}

PyMethodDef functions[] = {
    {"set_rules", set_rules, METH_VARARGS, "set_rules(process, thread): the numbers of the control rules that hold."},
    {"picture_ambient", picture_ambient, METH_NOARGS,
     "picture_ambient(): bytes that are equal only if `ambient_facts()` are; None: a mode or a transform is active, whose facts Python has to ask for."},
    {"any_foreign", any_foreign, METH_O, "any_foreign(tuple): whether a tensor in it lies in memory that is not PyTorch's alone."},
    {"is_a", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(is_a)), METH_FASTCALL,
     "is_a(obj, kinds): isinstance() that asks the type alone, and none of the user's code."},
    {"layout_of", fineline::layout_of, METH_O,
     "layout_of(tensor): its layout; None if it is not strided or is quantized, NotImplemented if Python has to ask."},
    {"hear_operators", fineline::hear_operators, METH_O,
     "hear_operators(callable): calls it before each operator that this thread runs from now on; None: no longer."},
    {"another", another, METH_O, "another(text): a str or bytes that is equal to it, and another object."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fineline._native", "Guard programs, dispatchers and tables by identity, in C++.", -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  fineline::Ref module(PyModule_Create(&definition));
  if (!module || !fineline::DictStamp::init()) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::GuardProgramType) < 0) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::DispatcherType) < 0) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::LayoutType) < 0) return nullptr;
  if (!fineline::add_identity_types(module.get())) return nullptr;
  return module.release();
}
