// A cheap picture of the state that `facts.ambient_facts()` describes.
#pragma once

#include <cstdint>

namespace fineline {

// Two equal pictures, both complete, mean equal facts. Not complete: a mode or a transform is active, whose facts need Python. A plain
// array of words, so that pictures compare as memory.
struct AmbientPicture {
  uint64_t words[8];
  bool complete;

  bool operator==(const AmbientPicture& other) const;
};

AmbientPicture picture_ambient();

}  // namespace fineline
