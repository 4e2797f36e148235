// A priority queue by time. Each item knows its position, so that it can be moved and removed.
//
//   struct entry : agenda_item<time_point> {};
//   class agenda<Item> {
//     void put(Item&, time_point at);     // enters it, or moves it
//     void advance_all(time_point at) noexcept;   // none is later
//     void drop(Item&) noexcept;
//     Item* first() const noexcept;       // the earliest; null when there is none
//   };
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace distlock::detail {

/// Base of what an agenda holds.
template <class TimePoint>
class agenda_item {
  public:
    using time_point = TimePoint;

    agenda_item() = default;
    agenda_item(const agenda_item&) = delete;
    agenda_item& operator=(const agenda_item&) = delete;

    bool listed() const noexcept { return place_ != nowhere; }
    /// Preconditions: listed().
    TimePoint at() const noexcept { return at_; }

  protected:
    ~agenda_item() = default;

  private:
    template <class Item>
    friend class agenda;
    static constexpr auto nowhere = static_cast<std::size_t>(-1);

    TimePoint at_{};
    std::size_t place_ = nowhere;
};

/// Holds pointers, owns nothing. Once it has held so many, it allocates nothing. Not thread-safe.
template <class Item>
class agenda {
    using time_point = typename Item::time_point;

  public:
    /// Effects: `item` is to be done at `at`, whether it was listed before or not.
    /// Throws: std::bad_alloc, and then nothing has changed; not for an item that is listed.
    /// Complexity: logarithmic.
    void put(Item& item, time_point at) {
        if (!item.listed()) {
            heap_.push_back(&item);
            item.place_ = heap_.size() - 1;
            item.at_ = at;
            rise(item.place_);
            return;
        }
        item.at_ = at;
        rise(item.place_);
        sink(item.place_);
    }

    /// Effects: what was to be done after `at` is to be done at `at`.
    /// Complexity: linear.
    void advance_all(time_point at) noexcept {
        // No item overtakes another, so the heap remains one.
        for (Item* const item : heap_) {
            if (at < item->at_) item->at_ = at;
        }
    }

    /// Effects: `item` is not listed afterwards.
    void drop(Item& item) noexcept {
        if (!item.listed()) return;
        const std::size_t hole = std::exchange(item.place_, Item::nowhere);
        Item* const last = heap_.back();
        heap_.pop_back();
        if (last == &item) return;
        set(hole, last);
        rise(hole);
        sink(last->place_);
    }

    Item* first() const noexcept { return heap_.empty() ? nullptr : heap_.front(); }

    /// Effects: `items` items will not allocate.
    void reserve(std::size_t items) { heap_.reserve(items); }

  private:
    void set(std::size_t place, Item* item) noexcept {
        heap_[place] = item;
        item->place_ = place;
    }

    void rise(std::size_t place) noexcept {
        Item* const item = heap_[place];
        while (place > 0) {
            const std::size_t parent = (place - 1) / 2;
            if (heap_[parent]->at_ <= item->at_) break;
            set(place, heap_[parent]);
            place = parent;
        }
        set(place, item);
    }

    void sink(std::size_t place) noexcept {
        Item* const item = heap_[place];
        for (;;) {
            std::size_t child = 2 * place + 1;
            if (child >= heap_.size()) break;
            if (child + 1 < heap_.size() && heap_[child + 1]->at_ < heap_[child]->at_) ++child;
            if (item->at_ <= heap_[child]->at_) break;
            set(place, heap_[child]);
            place = child;
        }
        set(place, item);
    }

    std::vector<Item*> heap_;
};

}  // namespace distlock::detail
