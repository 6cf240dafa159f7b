// Observes operators by PyTorch's record functions. A dispatch mode would see them too, but under one some operators compute in another way.
#include "operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

// CPython exports it, and declares it in its internal headers alone from 3.13 on.
extern "C" PyAPI_FUNC(int) _PyOS_IsMainThread(void);

namespace fineline {

namespace {

// Operators under way, within the outermost one that counts.
thread_local int depth = 0;
thread_local at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
// The autograd engine's threads take over the callbacks of the thread that they work for: there is one hearer for all.
PyObject* hearer = nullptr;

struct UnderWay : at::ObserverContext {};

bool is_made_of_others(const c10::OperatorName& name) {
  const auto found = c10::Dispatcher::singleton().findOp(name);
  return found && found->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

struct Raised {
  PyObject *type, *value, *traceback;
};

int raise_again(void* given) {
  std::unique_ptr<Raised> raised(static_cast<Raised*>(given));
  PyErr_Restore(raised->type, raised->value, raised->traceback);
  return -1;
}

// Only what has come from outside raises in the hearer: a signal's handler or, of a class, another thread. No exception can leave an operator
// from here, and so it is raised as soon as Python code runs again.
void raise_later() {
  auto raised = std::make_unique<Raised>();
  PyErr_Fetch(&raised->type, &raised->value, &raised->traceback);
  if (!_PyOS_IsMainThread()) {
    PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), raised->type);
    PyErr_Restore(raised->type, raised->value, raised->traceback);
    PyErr_Clear();
  } else if (Py_AddPendingCall(raise_again, raised.get()) == 0) {
    raised.release();
  } else {
    PyErr_Restore(raised->type, raised->value, raised->traceback);
    PyErr_WriteUnraisable(hearer);
  }
}

void hear() {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref done(hearer != nullptr ? PyObject_CallNoArgs(hearer) : nullptr);
  if (!done && PyErr_Occurred()) raise_later();
  PyErr_Restore(type, value, traceback);
  done.reset();
  PyGILState_Release(state);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
  const auto name = operation.operator_name();
  if (!name || (depth == 0 && is_made_of_others(*name))) return nullptr;
  if (depth++ == 0) hear();
  return std::make_unique<UnderWay>();
}

void end(const at::RecordFunction&, at::ObserverContext* under_way) {
  if (under_way != nullptr) depth--;
}

}  // namespace

PyObject* hear_operators(PyObject*, PyObject* callable) {
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
  if (callable != Py_None) {
    Py_XSETREF(hearer, Py_NewRef(callable));
    handle = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  }
  Py_RETURN_NONE;
}

}  // namespace fineline
