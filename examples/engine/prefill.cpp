// The prefill role: computes prompts chunk by chunk and sends each chunk's pages while the next one is computed.
#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include "engine/engine.h"

namespace kvferry::engine {
namespace {

struct Prompt {
  Request request;
  Sender sender;
  std::vector<std::int32_t> pages{};
  std::int32_t aux = -1;
  std::uint32_t computed = 0;    // tokens
  std::uint64_t sent_pages = 0;  // from the start of the request, prefix included
  bool init = false;
  bool all_sent = false;
  bool told = false;  // that it ended
};

class Prefill final : public Worker {
 public:
  Prefill(Parts& parts, KvManager manager)
      : parts_(parts), logits_(parts.options.model.vocab), manager_(std::move(manager)) {}

  void take(Request request) override {
    if (auto possible = check_request(parts_, request); !possible) {
      return say(failed_line(request.id, possible.error()));
    }
    auto sender = manager_.open_sender(request.room);
    if (!sender) return say(failed_line(request.id, sender.error()));
    prompts_.push_back(Prompt{std::move(request), std::move(*sender)});
  }

  void abort(std::uint64_t id) override {
    for (Prompt& prompt : prompts_) {
      if (prompt.request.id == id) prompt.sender.abort();
    }
  }

  void on_rooms_changed() override {
    manager_.changed();
    for (auto prompt = prompts_.begin(); prompt != prompts_.end();) {
      if (!prompt->told) advance(*prompt);
      // The memory may be read until the pages are released, whatever became of the room.
      const bool over = prompt->told && prompt->sender.pages_released();
      if (over) give_back(*prompt);
      prompt = over ? prompts_.erase(prompt) : std::next(prompt);
    }
  }

  bool step() override {
    for (Prompt& prompt : prompts_) {
      if (prompt.told || prompt.computed == prompt.request.prompt.size() || !has_memory(prompt)) continue;
      compute_chunk(prompt);
      advance(prompt);
      // The next one is the turn of another prompt.
      const auto same = std::ranges::find_if(prompts_, [&](const Prompt& p) { return &p == &prompt; });
      prompts_.splice(prompts_.end(), prompts_, same);
      return true;
    }
    return false;
  }

  int event_fd() const override { return manager_.event_fd(); }
  std::string address() const override { return manager_.address(); }

 private:
  bool has_memory(Prompt& prompt) {
    if (prompt.aux >= 0) return true;
    if (parts_.aux.free_pages() == 0) return false;
    auto pages = parts_.pages.allocate(parts_.options.model.pages_for(prompt.request.prompt.size()));
    if (!pages) return false;  // waits for another prompt's release
    prompt.pages = std::move(*pages);
    prompt.aux = parts_.aux.allocate(1)->front();
    return true;
  }

  void give_back(Prompt& prompt) {
    if (prompt.aux < 0) return;
    parts_.pages.release(prompt.pages);
    parts_.aux.release({&prompt.aux, 1});
  }

  void compute_chunk(Prompt& prompt) {
    const auto& tokens = prompt.request.prompt;
    const auto end = std::min<std::uint32_t>(static_cast<std::uint32_t>(tokens.size()),
                                             prompt.computed + parts_.options.chunk_tokens);
    const bool last = end == tokens.size();
    parts_.prefill(tokens, prompt.computed, end, prompt.pages, last ? std::span<float>(logits_) : std::span<float>());
    prompt.computed = end;
    if (!last) return;
    AuxRecord& aux = parts_.cache.aux(prompt.aux);
    aux.request_id = prompt.request.id;
    aux.room = prompt.request.room;
    aux.logits_checksum = checksum(logits_);
    aux.prompt_tokens = end;
    aux.first_token = argmax(logits_);
    aux.computed_ns = monotonic_ns();
  }

  // Sends what is computed and not sent yet, and tells the end.
  void advance(Prompt& prompt) {
    const Poll state = prompt.sender.poll();
    if (state == Poll::failed) return end(prompt, prompt.sender.error().value_or(Error{}));
    if (state == Poll::success) {
      prompt.told = true;
      const std::uint64_t bytes =
          (prompt.pages.size() - prompt.sender.prefix_pages()) * parts_.cache.shape().page_bytes_everywhere();
      return say(done_line({prompt.request.id, {parts_.cache.aux(prompt.aux).first_token}, bytes}));
    }
    if (state == Poll::bootstrapping || prompt.aux < 0 || prompt.all_sent) return;
    if (!prompt.init) {
      prompt.sent_pages = prompt.sender.prefix_pages();
      const std::uint64_t total = prompt.pages.size();
      const auto init = prompt.sender.init({total - std::min(total, prompt.sent_pages), prompt.aux});
      if (!init) return fail(prompt, init.error());
      prompt.init = true;
    }
    // A page goes once all of its tokens are there; the last one, whole or not, with the end of the prompt.
    const bool complete = prompt.computed == prompt.request.prompt.size();
    const std::uint64_t ready = complete ? prompt.pages.size() : prompt.computed / parts_.options.model.page_tokens;
    if (ready <= prompt.sent_pages && !complete) return;
    const std::uint64_t from = std::min<std::uint64_t>(prompt.sent_pages, ready);
    const auto sent = prompt.sender.send({std::span(prompt.pages).subspan(from, ready - from)});
    if (!sent) return fail(prompt, sent.error());
    prompt.sent_pages = ready;
    prompt.all_sent = complete;
  }

  void fail(Prompt& prompt, const Error& error) {
    prompt.sender.abort(error.text);
    end(prompt, error);
  }

  void end(Prompt& prompt, const Error& error) {
    prompt.told = true;
    say(failed_line(prompt.request.id, error));
  }

  Parts& parts_;
  std::vector<float> logits_;
  KvManager manager_;
  std::list<Prompt> prompts_{};  // in the order of their turns
};

}  // namespace

Result<std::unique_ptr<Worker>> make_prefill(Parts& parts) {
  auto manager = parts.make_manager(Role::prefill);
  if (!manager) return manager.error();
  return std::unique_ptr<Worker>(std::make_unique<Prefill>(parts, std::move(*manager)));
}

}  // namespace kvferry::engine
