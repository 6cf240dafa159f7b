// What an object is, by its type alone.
#pragma once

#include "object.h"

namespace fineline {

// `is_a(obj, kinds)`: a vectorcall function of two arguments.
PyObject* is_a(PyObject* module, PyObject* const* args, Py_ssize_t nargs);

}  // namespace fineline
