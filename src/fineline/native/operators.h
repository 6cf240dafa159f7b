// Tells Python of the operators that this thread runs.
#pragma once
#include "object.h"

namespace fineline {

// hear_operators(callable): `callable()` is called before each operator that runs in this thread from now on; with None, no longer.
// What an operator calls for itself does not count, and neither do operators that are only made of others.
PyObject* hear_operators(PyObject*, PyObject* hearer);

}  // namespace fineline
