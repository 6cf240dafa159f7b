// What every file here needs of CPython: the headers, the version they are written for, and an owning pointer.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "the native guard evaluator relies on object layouts of CPython 3.11 to 3.14"
#endif
#ifdef Py_GIL_DISABLED
#error "the native guard evaluator relies on the GIL: while it reads objects, no other thread changes them"
#endif

namespace fineline {

// The outcome of a step, or of a whole pass: `Python` means that only the reference evaluator can tell.
enum class Verdict : uint8_t { Pass, Fail, Python };

inline Verdict verdict(bool passed) { return passed ? Verdict::Pass : Verdict::Fail; }

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

// Sets an error. False, which is what the function that calls this is to return.
template <typename... Values>
bool refuse(PyObject* kind, const char* format, Values... values) {
  PyErr_Format(kind, format, values...);
  return false;
}

}  // namespace fineline
