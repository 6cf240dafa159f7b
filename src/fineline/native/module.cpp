// The extension module fineline._native.
#include "step.h"
#include "types.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fineline._native", "Guard programs and dispatchers in C++.", -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  fineline::Ref module(PyModule_Create(&definition));
  if (!module || !fineline::init_steps()) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::GuardProgramType) < 0) return nullptr;
  if (PyModule_AddType(module.get(), &fineline::DispatcherType) < 0) return nullptr;
  return module.release();
}
