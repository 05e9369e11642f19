// The decode role: receives the cache of a prompt into pages of its own and goes on from there, all requests in one
// batch.
#include <algorithm>
#include <list>
#include <utility>

#include "engine/group.h"
#include "engine/prefix_cache.h"

namespace kvferry::engine {
namespace {

struct Answer {
  Request request;
  std::vector<std::int32_t> pages{};  // prefix from the cache, then our own; room for prompt and answer
  std::uint64_t prefix_pages = 0;
  std::int32_t aux = -1;
  bool init = false;
  double handoff_us = 0;
  std::vector<std::int32_t> tokens{};
  std::vector<float> logits{};
  bool told = false;  // that it ended
};

class Decode final : public Worker {
 public:
  explicit Decode(Group& group)
      : group_(group), parts_(group.parts()), prefixes_(parts_.pages, parts_.options.model.page_tokens) {}

  void take(Request request) override {
    if (auto possible = check_request(parts_, request); !possible) {
      return say(failed_line(request.id, possible.error()));
    }
    group_.tell(order::Open{request.id, request.room, request.bootstrap});
    answers_.push_back(Answer{std::move(request)});
  }

  void abort(std::uint64_t id) override {
    for (Answer& answer : answers_) {
      if (answer.request.id == id) group_.tell(order::Abort{id, "aborted by the engine"});
    }
  }

  void on_rooms_changed() override {
    group_.refresh();
    for (auto answer = answers_.begin(); answer != answers_.end();) {
      if (!answer->told) advance(*answer);
      // Pages of a room that failed may still be written until they are released.
      const bool over = answer->told && group_.view(answer->request.id).released;
      if (over) give_back(*answer);
      answer = over ? answers_.erase(answer) : std::next(answer);
    }
    // Memory may have become free: who waits for it tries again.
    for (Answer& answer : answers_) {
      if (!answer.told && !answer.init) advance(answer);
    }
  }

  // One token of every answer that is under way, in one batch.
  bool step() override {
    order::Compute work;
    std::vector<std::span<float>> logits;
    std::vector<Answer*> batch;
    for (Answer& answer : answers_) {
      if (answer.tokens.empty() || answer.told) continue;
      const auto position = static_cast<std::uint32_t>(answer.request.prompt.size() + answer.tokens.size() - 1);
      work.runs.push_back({{answer.tokens.back()}, position, answer.pages});
      logits.emplace_back(answer.logits);
      batch.push_back(&answer);
    }
    if (batch.empty()) return false;
    group_.tell(work, logits);
    for (Answer* answer : batch) {
      answer->tokens.push_back(argmax(answer->logits));
      if (answer->tokens.size() >= answer->request.max_tokens) finish(*answer);
    }
    std::erase_if(answers_, [this](Answer& answer) {
      const bool over = answer.told && group_.view(answer.request.id).released;
      if (over) give_back(answer);
      return over;
    });
    for (Answer& answer : answers_) {
      if (!answer.told && !answer.init) advance(answer);
    }
    return true;
  }

  int event_fd() const override { return group_.event_fd(); }

 private:
  void advance(Answer& answer) {
    const RoomView room = group_.view(answer.request.id);
    if (room.poll == Poll::failed) {
      answer.told = true;
      return say(failed_line(answer.request.id, room.code, room.text));
    }
    if (room.poll == Poll::waiting_for_input && !answer.init && allocate(answer)) {
      const auto begin = answer.pages.begin();
      group_.tell(order::Init{.key = answer.request.id,
                              .pages = {begin + static_cast<std::ptrdiff_t>(answer.prefix_pages),
                                        begin + parts_.options.model.pages_for(answer.request.prompt.size())},
                              .prefix_pages = answer.prefix_pages,
                              .aux = answer.aux});
      answer.init = true;
    }
    if (room.poll == Poll::success && answer.tokens.empty()) start(answer);
  }

  bool allocate(Answer& answer) {
    if (parts_.aux.free_pages() == 0) return false;
    const auto& prompt = answer.request.prompt;
    const std::size_t wanted = parts_.options.model.pages_for(prompt.size() + answer.request.max_tokens);
    answer.pages = prefixes_.acquire(prompt);
    prefixes_.make_room(wanted - answer.pages.size());
    auto own = parts_.pages.allocate(wanted - answer.pages.size());
    if (!own) {
      parts_.pages.release(answer.pages);
      answer.pages.clear();
      return false;
    }
    answer.prefix_pages = answer.pages.size();
    answer.pages.insert(answer.pages.end(), own->begin(), own->end());
    answer.aux = parts_.aux.allocate(1)->front();
    return true;
  }

  // Everything is here: the first token came with the cache.
  void start(Answer& answer) {
    const AuxRecord& aux = parts_.cache.aux(answer.aux);
    answer.handoff_us = static_cast<double>(monotonic_ns() - aux.computed_ns) / 1000;
    if (aux.request_id != answer.request.id || aux.prompt_tokens != answer.request.prompt.size()) {
      answer.told = true;
      return say(failed_line(answer.request.id, Code::internal, "the aux record is of another request"));
    }
    answer.tokens.push_back(aux.first_token);
    answer.logits.resize(parts_.options.model.vocab);
    prefixes_.insert(answer.request.prompt, answer.pages);
    if (answer.tokens.size() >= answer.request.max_tokens) finish(answer);
  }

  void finish(Answer& answer) {
    answer.told = true;
    const auto transports = group_.manager().stats().transports;
    say(done_line({answer.request.id, answer.tokens, group_.view(answer.request.id).bytes, answer.handoff_us,
                   transports.empty() ? std::string() : transports.front()}));
  }

  void give_back(Answer& answer) {
    group_.tell(order::Forget{answer.request.id});
    if (answer.aux < 0) return;
    parts_.pages.release(answer.pages);
    parts_.aux.release({&answer.aux, 1});
  }

  Group& group_;
  Parts& parts_;
  PrefixCache prefixes_;
  std::list<Answer> answers_{};
};

}  // namespace

std::unique_ptr<Worker> make_decode(Group& group) { return std::make_unique<Decode>(group); }

}  // namespace kvferry::engine
