// A model of a hub as a directory: from the cache, or downloaded into it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "hub/file_choice.h"
#include "hub/settings.h"

namespace stft::hub {

struct ModelRequest {
  std::string id;  // as is_repo_id judges it
  std::string revision = "main";
  Wanted wanted = Wanted::kModel;
};

struct Snapshot {
  std::string directory;
  std::string commit;
};

struct Progress {
  std::string commit;
  std::string file;  // the one under way; empty at the end
  std::int64_t files_done = 0;
  std::int64_t files = 0;  // that had to be downloaded
  std::int64_t received_bytes = 0;
  std::int64_t total_bytes = 0;
};

// What a download tells while it is under way. Each may be null.
struct Observer {
  std::function<void(const Progress&)> on_progress;  // not called when the cache has everything
  std::function<void(const std::string&)> on_warning;
  std::function<bool()> should_stop;
};

// The directory with the model's files at `request.revision`. A commit that the cache has whole is used without
// network; a branch or tag is looked up first, and only files that the cache lacks are downloaded. A hub that cannot be
// reached, or refuses, is a warning where the cache has what was looked up last. Any number of processes may ask at the
// same time: one downloads a file, the others wait for it. UserError: no such model, revision or file, no access,
// weights that only a pickle holds, a file of the model that is malformed, or a network that the environment forbids
// while the cache lacks something. SystemError: what the disk or the network refuses, a hub that goes on failing or
// sends other content than it says, should_stop.
Snapshot fetch_model(const ModelRequest& request, const Settings& settings, const Observer& observer);

// The same from the cache alone; none when it lacks something or does not know whether it does.
std::optional<Snapshot> find_model(const ModelRequest& request, const Settings& settings);

}  // namespace stft::hub
