// The extension module fineline._native.
#include "ambient.h"
#include "kinds.h"
#include "tensor_spec.h"
#include "types.h"

namespace {

PyObject* set_rules(PyObject*, PyObject* args) {
  unsigned long long process = 0, thread = 0;
  if (!PyArg_ParseTuple(args, "KK", &process, &thread)) return nullptr;
  fineline::set_rules(process, thread);
  Py_RETURN_NONE;
}

PyObject* any_foreign(PyObject*, PyObject* tensors) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); i++) {
    if (fineline::is_foreign(PyTuple_GET_ITEM(tensors, i))) Py_RETURN_TRUE;
  }
  Py_RETURN_FALSE;
}

PyMethodDef functions[] = {
    {"set_rules", set_rules, METH_VARARGS, "set_rules(process, thread): the numbers of the control rules that hold."},
    {"any_foreign", any_foreign, METH_O, "any_foreign(tuple): whether one of the tensors in it lies in memory that is not PyTorch's alone."},
    {"is_a", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fineline::is_a)), METH_FASTCALL,
     "is_a(obj, kinds): isinstance() that asks the type alone, and none of the user's code."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fineline._native", "Guard programs and dispatchers in C++.", -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  fineline::Ref module(PyModule_Create(&definition));
  if (!module) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::GuardProgramType) < 0) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::DispatcherType) < 0) return nullptr;
  return module.release();
}
