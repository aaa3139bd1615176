#include "hub/transfer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hub/digest.h"
#include "hub/file_lock.h"

namespace stft::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStepForwardBytes = 1 << 20;  // starts the counting of attempts anew
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// The server does not send the content that the hub described.
class OtherContent : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file that grows: what is in it from before, and what comes. Written at explicit places, so that two processes
// that do not see each other's locks write the same bytes to the same places.
class IncompleteBlob : public BodySink {
 public:
  IncompleteBlob(std::string path, const FileMetadata& metadata, const ByteCount& on_bytes)
      : path_(std::move(path)), metadata_(metadata), on_bytes_(on_bytes) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw_errno("creating", path_, errno);
    }
    start_over();
    absorb_what_is_there();
  }
  ~IncompleteBlob() override { ::close(descriptor_); }
  IncompleteBlob(const IncompleteBlob&) = delete;
  IncompleteBlob& operator=(const IncompleteBlob&) = delete;

  std::int64_t size_bytes() const { return size_bytes_; }
  bool is_whole() const { return size_bytes_ == metadata_.size_bytes; }

  void begin(const HttpResponse& head) override {
    const std::string range = fmt::format("bytes {}-", size_bytes_);
    if (size_bytes_ > 0 && !(head.status == 206 && head.header("content-range").value_or("").starts_with(range))) {
      start_over();
      truncate();
      if (head.status == 206) {
        throw OtherContent("the server sent another part of the file than it was asked for");
      }
    }
  }

  void write(std::span<const std::byte> bytes) override {
    if (size_bytes_ + static_cast<std::int64_t>(bytes.size()) > metadata_.size_bytes) {
      throw OtherContent(fmt::format("the server sent more than the {} bytes that it announced", metadata_.size_bytes));
    }
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done,
                                 size_bytes_ + static_cast<std::int64_t>(done));
      if (n < 0 && errno != EINTR) {
        throw_errno("writing", path_, errno);
      }
      done += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    absorb(bytes);
  }

  // Whole and as the etag says, and on the disk.
  void check_and_sync() {
    if (hash_ && hash_->hex() != metadata_.etag) {
      throw OtherContent("the content's hash is not the one that the hub announced");
    }
    if (::fsync(descriptor_) != 0) {
      throw_errno("fsync", path_, errno);
    }
  }

  void discard() {
    start_over();
    truncate();
  }

 private:
  void absorb(std::span<const std::byte> bytes) {
    if (hash_) {
      hash_->update(bytes);
    }
    size_bytes_ += static_cast<std::int64_t>(bytes.size());
    on_bytes_(static_cast<std::int64_t>(bytes.size()));
  }

  void start_over() {
    if (size_bytes_ > 0) {
      on_bytes_(-size_bytes_);
    }
    size_bytes_ = 0;
    hash_ = hash_for_etag(metadata_.etag, metadata_.size_bytes);
  }

  void truncate() {
    if (::ftruncate(descriptor_, 0) != 0) {
      throw_errno("truncating", path_, errno);
    }
  }

  void absorb_what_is_there() {
    struct stat found {};
    if (::fstat(descriptor_, &found) != 0) {
      throw_errno("stat", path_, errno);
    }
    if (found.st_size > metadata_.size_bytes) {
      truncate();
      return;
    }
    std::vector<std::byte> buffer(kReadBytes);
    while (size_bytes_ < found.st_size) {
      const ssize_t n = ::pread(descriptor_, buffer.data(), buffer.size(), size_bytes_);
      if (n < 0 && errno != EINTR) {
        throw_errno("reading", path_, errno);
      }
      if (n == 0) {
        break;
      }
      absorb(std::span(buffer).first(n > 0 ? static_cast<std::size_t>(n) : 0));
    }
  }

  std::string path_;
  const FileMetadata& metadata_;
  const ByteCount& on_bytes_;
  int descriptor_ = -1;
  std::int64_t size_bytes_ = 0;
  std::optional<Hash> hash_;
};

class Transfer {
 public:
  Transfer(Repository& repository, const WantedFile& file, IncompleteBlob& blob)
      : repository_(repository), file_(file), blob_(blob), what_("downloading '" + file.name + "'") {}

  void run() {
    while (true) {
      try {
        fetch_rest();
        blob_.check_and_sync();
        return;
      } catch (const OtherContent& mistake) {
        blob_.discard();
        // What an earlier process left may be what is wrong: once more, from the first byte.
        if (std::exchange(has_started_over_, true)) {
          throw SystemError(message(mistake.what()));
        }
      }
    }
  }

 private:
  void fetch_rest() {
    std::int64_t milestone = blob_.size_bytes();
    int attempt = 1;
    while (!blob_.is_whole()) {
      std::optional<HttpResponse> response;
      std::string reason;
      try {
        response = repository_.get_file(file_.commit, file_.name, blob_.size_bytes(), blob_);
        if (blob_.is_whole() && (response->status == 200 || response->status == 206)) {
          return;
        }
        reason = explain(*response);
      } catch (const HttpFailure& failure) {
        reason = failure.what();
        if (!is_passing(failure.trouble())) {
          throw SystemError(message(reason));
        }
      }
      if (blob_.size_bytes() >= milestone + kStepForwardBytes) {
        attempt = 0;
        milestone = blob_.size_bytes();
      }
      if (++attempt > repository_.settings().attempts) {
        throw HubUnreachable(message(fmt::format("{} (tried {} times)", reason, repository_.settings().attempts)));
      }
      const double delay = delay_before(std::max(attempt, 2), repository_.settings(), response ? &*response : nullptr);
      repository_.client().wait(delay);
    }
  }

  // Why a response is to be tried again; throws when it is not.
  std::string explain(const HttpResponse& response) {
    if (response.status == 200 || response.status == 206) {
      return fmt::format("the server sent {} of {} bytes", blob_.size_bytes(), file_.metadata.size_bytes);
    }
    if (response.status == 416) {
      throw OtherContent("the server does not have the part of the file that it was asked for");
    }
    const std::string reason = fmt::format("HTTP status {}", response.status);
    // The hub has just told of the file, so 403 is a storage whose link has run out.
    if (!is_passing(response.status) && response.status != 403) {
      throw SystemError(message(reason));
    }
    return reason;
  }

  std::string message(const std::string& reason) const {
    return fmt::format("model '{}': {} from {}: {}", repository_.id(), what_, repository_.settings().endpoint, reason);
  }

  Repository& repository_;
  const WantedFile& file_;
  IncompleteBlob& blob_;
  std::string what_;
  bool has_started_over_ = false;
};

// A blob of another size is damaged: it is brought again.
bool is_whole_blob(const std::string& path, std::int64_t size_bytes) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == static_cast<std::uintmax_t>(size_bytes);
}

}  // namespace

bool bring_blob(Repository& repository, const RepoCache& cache, const WantedFile& file, const ByteCount& on_bytes) {
  const std::string& etag = file.metadata.etag;
  if (is_whole_blob(cache.blob(etag), file.metadata.size_bytes)) {
    return false;
  }
  cache.prepare();
  std::string state;
  FileLock::Patience patience;
  patience.wait = [&](double seconds) {
    on_bytes(0);
    repository.client().wait(seconds);
  };
  patience.has_moved = [&] {
    const std::string before = std::exchange(state, cache.blob_state(etag));
    return state != before;
  };
  patience.seconds = std::max(60.0, 6 * repository.settings().download_timeout_s);
  const FileLock lock(cache.lock(etag), patience);
  if (is_whole_blob(cache.blob(etag), file.metadata.size_bytes)) {
    return false;  // another process has brought it meanwhile
  }
  const std::string path = cache.incomplete_blob(etag);
  {
    IncompleteBlob blob(path, file.metadata, on_bytes);
    Transfer(repository, file, blob).run();
  }
  std::error_code error;
  fs::rename(path, cache.blob(etag), error);
  if (error && !is_whole_blob(cache.blob(etag), file.metadata.size_bytes)) {
    throw SystemError(fmt::format("renaming to '{}': {}", cache.blob(etag), error.message()));
  }
  return true;
}

}  // namespace stft::hub
