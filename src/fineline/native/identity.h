// Tables whose keys are objects by identity.
#pragma once

#include "object.h"

namespace fineline {

// Adds the types of fineline/identity.py, where they are described, to the module.
bool add_identity_types(PyObject* module);

}  // namespace fineline
