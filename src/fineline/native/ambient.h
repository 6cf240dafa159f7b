// A cheap picture of the state that `facts.ambient_facts()` describes.
#pragma once

#include <cstdint>

namespace fineline {

// Two equal pictures, both complete, mean equal facts. Not complete: a mode or a transform is active, whose facts need Python. A plain
// array of words, so that pictures compare as memory.
struct AmbientPicture {
  uint64_t words[10];
  bool complete;

  bool operator==(const AmbientPicture& other) const;
};

AmbientPicture picture_ambient();

// Which control rules hold (guards/rulebook.py): a number for the process and one for the calling thread.
void set_rules(uint64_t process, uint64_t thread);

}  // namespace fineline
