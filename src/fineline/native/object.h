// What every file here needs of CPython: the headers, the version they are written for, and an owning pointer.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "the native guard evaluator relies on object layouts of CPython 3.11"
#endif

namespace fineline {

// The outcome of a step, or of a whole pass: `Python` means that only the reference evaluator can tell.
enum class Verdict : uint8_t { Pass, Fail, Python };

struct Decref {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Ref = std::unique_ptr<PyObject, Decref>;  // an owned reference

inline Ref new_ref(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }

inline uint64_t load_word(const void* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline uint64_t as_word(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Holds off the cyclic collector, which would run finalizers (any code at all) where an object is allocated.
class NoCollection {
 public:
  NoCollection() : enabled_(PyGC_Disable()) {}
  ~NoCollection() {
    if (enabled_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  int enabled_;
};

// A type whose instances keep it for life: neither `__class__` assignment nor deallocation can take it away.
inline bool is_permanent(PyTypeObject* type) {
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(type, &PyModule_Type);
}

}  // namespace fineline
