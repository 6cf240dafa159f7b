// The Python types of the extension module.
#pragma once

#include "object.h"

namespace fineline {

class Program;

struct GuardProgram {
  PyObject_HEAD
  Py_ssize_t n_roots;
  PyObject* steps;    // the tuple that owns all payloads; null once the collector has cleared the program
  PyObject* outputs;
  Program* program;
  PyObject* weakrefs;
};

extern PyTypeObject GuardProgramType;
extern PyTypeObject DispatcherType;

}  // namespace fineline
