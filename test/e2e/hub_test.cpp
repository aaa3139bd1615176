// Models that are named by the id of a hub: one process downloads, all read the same, and troubles have their exit
// codes.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "e2e/hub_run.h"
#include "e2e/port.h"
#include "e2e/small_disk.h"

namespace stft::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

class HubRun {
 public:
  HubRun() { serve_tiny_bert(server); }

  Command command(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) const {
    Command result{std::move(arguments)};
    result.environment = hub_environment(server, directory.path("hf"));
    for (const std::string& variable : more) {
      const std::string name = variable.substr(0, variable.find('=') + 1);
      std::erase_if(result.environment, [&](const std::string& entry) { return entry.starts_with(name); });
      result.environment.push_back(variable);
    }
    return result;
  }
  Outcome run(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) const {
    return run_stft(command(std::move(arguments), more));
  }

  TemporaryDirectory directory;
  HubServer server;
};

void check_ends(const Outcome& outcome, int exit_code, const std::vector<std::string>& expected) {
  INFO(outcome.err);
  CHECK(outcome.exit_code == exit_code);
  for (const std::string& text : expected) {
    CHECK_THAT(outcome.err, Contains(text));
  }
}

}  // namespace

TEST_CASE("two ranks train a hub's model that one process has downloaded", "[e2e][hub]") {
  HubRun hub;
  Json recipe = small_recipe(hub.directory);
  recipe["run"]["output_dir"] = hub.directory.path("from-directory");
  check_ends(run_stft({"train", write_recipe(hub.directory, recipe), "--nproc", "2"}), 0, {});

  recipe = hub_recipe(hub.directory);
  const std::string path = write_recipe(hub.directory, recipe);
  const Outcome first = hub.run({"train", path, "--nproc", "2"});
  check_ends(first, 0, {"downloading model some-org/tiny.model", "downloaded "});
  CHECK(holds_same_tensors(hub.directory.path("run/final/model.safetensors"),
                           hub.directory.path("from-directory/final/model.safetensors")));
  CHECK(numbers(read_log(hub.directory.path("run")).steps, "loss") ==
        numbers(read_log(hub.directory.path("from-directory")).steps, "loss"));
  CHECK(hub.server.count("GET", "/storage/") == 1);
  CHECK(hub.server.count("GET", "/config.json") == 2);  // the model's and the pooling's
  CHECK(hub.server.count("GET", "/api/") == 1);
  CHECK_THAT(
      read_bytes(hub.directory.path("run/recipe.resolved.yaml")),
      Contains("name_or_path: some-org/tiny.model") && Contains(fmt::format("revision: \"{}\"", HubServer::kCommit)));

  // From the cache: a question to the hub, no file; and offline no question either.
  const auto requests = hub.server.requests().size();
  check_ends(hub.run({"train", path, "--nproc", "2", "--overwrite"}), 0, {});
  CHECK(hub.server.requests().size() == requests + 1);
  check_ends(hub.run({"train", path, "--nproc", "2", "--overwrite"}, {"HF_HUB_OFFLINE=1"}), 0, {});
  CHECK(hub.server.requests().size() == requests + 1);
}

TEST_CASE("ranks that somebody else started download once and fail alike", "[e2e][hub]") {
  HubRun hub;
  const std::string path = write_recipe(hub.directory, hub_recipe(hub.directory));
  const auto run_both = [&](const std::vector<std::string>& more) {
    const std::string port = free_port();
    const auto of_rank = [&](int rank) {
      const std::string number = std::to_string(rank);
      std::vector<std::string> environment = {"RANK=" + number,     "WORLD_SIZE=2",          "LOCAL_RANK=" + number,
                                              "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port};
      environment.insert(environment.end(), more.begin(), more.end());
      return hub.command({"train", path}, environment);
    };
    Process first(of_rank(0));
    Process second(of_rank(1));
    return std::vector<Outcome>{first.wait(60), second.wait(60)};
  };
  hub.server.misbehave([](const HubRequest&) { return HubReply{401, {{"X-Error-Code", "GatedRepo"}}, "{}"}; });
  for (const Outcome& outcome : run_both({})) {
    check_ends(outcome, 2, {"granted access", "HF_TOKEN"});
  }
  hub.server.misbehave(nullptr);
  for (const Outcome& outcome : run_both({})) {
    check_ends(outcome, 0, {});
  }
  CHECK(hub.server.count("GET", "/storage/") == 1);
  CHECK(hub.server.count("GET", "/api/") == 2);
}

TEST_CASE("every command that takes a model takes a hub's", "[e2e][hub]") {
  HubRun hub;
  const std::string id = HubServer::kId;
  const std::string directory = source_path("test/golden/tiny_bert");
  const Outcome tokens = hub.run({"tokenize", id, "--text", "small flowers", "--revision", "v1"});
  check_ends(tokens, 0, {});
  CHECK(tokens.out == run_stft({"tokenize", directory, "--text", "small flowers"}).out);
  CHECK(hub.server.count("GET", "/storage/") == 0);

  const std::string texts = hub.directory.write("texts.txt", "small flowers\na river\n");
  check_ends(hub.run({"encode", id, "--input", texts, "--output", hub.directory.path("hub.npy"), "--nproc", "2"}), 0,
             {});
  check_ends(run_stft({"encode", directory, "--input", texts, "--output", hub.directory.path("directory.npy")}), 0, {});
  CHECK(read_bytes(hub.directory.path("hub.npy")) == read_bytes(hub.directory.path("directory.npy")));

  Json recipe = hub_recipe(hub.directory);
  recipe["evaluators"] = Json::array({beir_evaluator()});
  const std::string path = write_recipe(hub.directory, recipe);
  const Outcome evaluated = hub.run({"eval", id, "--recipe", path, "--json", "--nproc", "2"});
  check_ends(evaluated, 0, {});
  CHECK(evaluated.out == run_stft({"eval", directory, "--recipe", path, "--json", "--nproc", "2"}).out);

  check_ends(hub.run({"export", id, "--out", hub.directory.path("exported")}), 0, {});
  CHECK(holds_same_tensors(hub.directory.path("exported/model.safetensors"), directory + "/model.safetensors"));
  CHECK(fs::is_regular_file(fs::symlink_status(hub.directory.path("exported/tokenizer.json"))));
  CHECK(hub.server.count("GET", "/storage/") == 1);
}

TEST_CASE("check asks no hub", "[e2e][hub]") {
  HubRun hub;
  const std::string path = write_recipe(hub.directory, hub_recipe(hub.directory));
  const Outcome before = hub.run({"check", path});
  check_ends(before, 0, {"not in the cache", "only the id's form"});
  CHECK_THAT(before.out, Contains("name_or_path: some-org/tiny.model"));
  CHECK(hub.server.requests().empty());
  CHECK_FALSE(fs::exists(hub.directory.path("hf")));
  check_ends(hub.run({"train", path}), 0, {});
  const auto requests = hub.server.requests().size();
  check_ends(hub.run({"check", path}), 0, {"as the cache has it"});
  check_ends(hub.run({"check", path, "--set", "model.max_seq_length=100000"}), 2, {"model.max_seq_length"});
  CHECK(hub.server.requests().size() == requests);
}

TEST_CASE("troubles with a hub have the exit codes of their kind", "[e2e][hub]") {
  HubRun hub;
  const std::string texts = hub.directory.write("texts.txt", "a\n");
  const auto encode = [&](const std::string& model, const std::vector<std::string>& more = {}) {
    return hub.run({"encode", model, "--input", texts, "--output", hub.directory.path("o.npy")}, more);
  };
  check_ends(encode("some-org/other"), 2, {"no directory of this name", "no such model", "HF_TOKEN"});
  check_ends(encode("some-org/other/deeper"), 2, {"some-org/other/deeper"});
  check_ends(hub.run({"tokenize", HubServer::kId, "--text", "a", "--revision", "v9"}), 2, {"'v9'", "main, v1"});
  check_ends(hub.run({"tokenize", HubServer::kId, "--text", "a", "--revision", "../x"}), 2, {"revision '../x'"});
  check_ends(hub.run({"tokenize", source_path("test/golden/tiny_bert"), "--text", "a", "--revision", "v1"}), 2,
             {"--revision is for the id"});
  check_ends(encode(HubServer::kId, {"HF_HUB_OFFLINE=1"}), 2, {"HF_HUB_OFFLINE", "lacks revision 'main'"});
  check_ends(encode(HubServer::kId, {"HF_ENDPOINT=hub"}), 2, {"HF_ENDPOINT"});
  check_ends(hub.run({"eval", "runs/misspelt"}), 2, {"no such directory 'runs/misspelt'", "--recipe"});
  const std::string blocked = hub.directory.write("blocked", "a file");
  check_ends(encode(HubServer::kId, {"HF_HOME=" + blocked}), 1, {"creating directory", blocked});
  CHECK_FALSE(fs::exists(hub.directory.path("o.npy")));
}

TEST_CASE("a disk that is full or read-only ends a download with what was refused", "[e2e][hub]") {
  if (!SmallDisk::is_allowed()) {
    return;
  }
  HubRun hub;
  const std::string home = hub.directory.path("hf");
  fs::create_directory(home);
  const std::string texts = hub.directory.write("texts.txt", "a\n");
  const std::vector<std::string> arguments = {
      "encode", HubServer::kId, "--input", texts, "--output", hub.directory.path("o.npy"), "--overwrite"};
  SmallDisk disk(home, 96 * 1024);
  check_ends(hub.run(arguments), 1, {"writing '" + home, ".incomplete'", "No space left on device"});
  disk.resize(4 * 1024 * 1024);
  check_ends(hub.run(arguments), 0, {});
  CHECK(hub.server.count("GET", "/storage/") == 2);  // the second for the rest
  disk.make_read_only();
  check_ends(hub.run(arguments), 0, {});  // all is there
  check_ends(hub.run({"tokenize", HubServer::kId, "--revision", "v1", "--text", "a"}), 0, {"warning", "refs"});
  hub.server.add("tokenizer.json", read_bytes(source_path("test/golden/tiny_bert/tokenizer.json")) + "\n");
  hub.server.move_main(std::string(40, 'a'));
  check_ends(hub.run({"tokenize", HubServer::kId, "--text", "a"}), 1, {home, "Read-only file system"});
}

TEST_CASE("a terminal sees a download grow, a file only lines", "[e2e][hub]") {
  HubRun hub;
  Command command = hub.command({"tokenize", HubServer::kId, "--text", "a"});
  command.has_terminal = true;
  check_ends(run_stft(command), 0, {"\r\033[Ksome-org/tiny.model: ", " MB/s, ", "downloaded "});
  HubRun other;
  const Outcome outcome = other.run({"tokenize", HubServer::kId, "--text", "a"});
  check_ends(outcome, 0, {"downloading model", "downloaded "});
  CHECK(outcome.err.find('\r') == std::string::npos);
}

TEST_CASE("two processes at once download a file once", "[e2e][hub]") {
  HubRun hub;
  hub.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    if (request.method == "GET" && request.path.ends_with("/tokenizer.json")) {
      // Time for the other to come to the lock.
      for (int i = 0; i < 1000 && hub.server.count("HEAD", "/tokenizer.json") < 2; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return std::nullopt;
  });
  Process first(hub.command({"tokenize", HubServer::kId, "--text", "a"}));
  Process second(hub.command({"tokenize", HubServer::kId, "--text", "a"}));
  const Outcome one = first.wait(60);
  const Outcome two = second.wait(60);
  check_ends(one, 0, {});
  check_ends(two, 0, {});
  CHECK(one.out == two.out);
  CHECK(hub.server.count("GET", "/tokenizer.json") == 1);
}

TEST_CASE("a signal ends a download, and the next run goes on from it", "[e2e][hub]") {
  HubRun hub;
  const std::string path = write_recipe(hub.directory, hub_recipe(hub.directory));
  hub.server.misbehave([&](const HubRequest& request) -> std::optional<HubReply> {
    return request.path.starts_with("/storage/") ? std::optional(HubReply{.never_comes = true}) : std::nullopt;
  });
  for (const int signal_number : {SIGINT, SIGTERM}) {
    Process process(hub.command({"train", path, "--nproc", "2"}));
    const int before = hub.server.count("GET", "/storage/");
    const double start = 60;
    process.wait_until([&](const Process&) { return hub.server.count("GET", "/storage/") > before; }, 0.2);
    for (int i = 0; i < 100 && hub.server.count("GET", "/storage/") == before; ++i) {
      process.wait_until([](const Process&) { return false; }, 0.1);
    }
    process.handle().send(signal_number);
    const Outcome outcome = process.wait(start);
    CHECK(outcome.seconds < 18);  // not the timeout
    check_ends(outcome, 1, {"stopped"});
  }
  CHECK_FALSE(fs::exists(hub.directory.path("run")));
  hub.server.misbehave(nullptr);
  const int small_files = hub.server.count("GET", "/tokenizer.json");
  check_ends(hub.run({"train", path, "--nproc", "2"}), 0, {});
  CHECK(hub.server.count("GET", "/tokenizer.json") == small_files);
}

}  // namespace stft::test
