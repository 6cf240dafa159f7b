// The layout of a tensor, kept without the tensor.
#pragma once

#include "object.h"

namespace fineline {

extern PyTypeObject LayoutType;

// layout_of(tensor): None of one that is not strided, or quantized; NotImplemented of what is no torch.Tensor or Parameter, or if only its own
// code can tell.
PyObject* layout_of(PyObject*, PyObject* tensor);

}  // namespace fineline
