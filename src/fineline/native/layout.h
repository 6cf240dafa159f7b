// The layout of a tensor, kept without the tensor.
#pragma once

#include "object.h"

namespace fineline {

extern PyTypeObject LayoutType;

// layout_of(tensor): None if it is not strided, or is quantized; NotImplemented if its class is neither torch.Tensor nor Parameter, or if only
// Python code knows its sizes.
PyObject* layout_of(PyObject*, PyObject* tensor);

}  // namespace fineline
