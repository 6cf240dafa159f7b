// What every file here needs of CPython: the headers, the version they are written for, and an owning pointer.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <utility>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "the native guard evaluator relies on object layouts of CPython 3.11"
#endif

namespace fineline {

// The outcome of a step, or of a whole pass: `Python` means that only the reference evaluator can tell.
enum class Verdict : uint8_t { Pass, Fail, Python };

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  static Ref borrow(PyObject* object) { return Ref(Py_XNewRef(object)); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

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
