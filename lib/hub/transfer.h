// One file from the hub to the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hub/cache.h"
#include "hub/repository.h"

namespace stft::hub {

struct WantedFile {
  std::string commit;
  std::string name;
  FileMetadata metadata;
};

// Told with the bytes that came anew, or 0 while waiting for another process; negative when they must come again.
using ByteCount = std::function<void(std::int64_t)>;

// Brings the blob of `file` into the cache, whole and checked, or finds it there. A process at a time works on a blob;
// what an interrupted one left is gone on from. Whether this call brought it. HubUnreachable after settings.attempts
// without a step forward; SystemError for content of another size or hash than the hub says, and for what the disk
// refuses; Stopped.
bool bring_blob(Repository& repository, const RepoCache& cache, const WantedFile& file, const ByteCount& on_bytes);

}  // namespace stft::hub
