// Charts as SVG: a canvas of a few shapes, and a chart of grouped bars. Light ground of their own, so
// they read on dark pages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench::svg {

inline constexpr const char* ink = "#24292f";
inline constexpr const char* faint_ink = "#57606a";
inline constexpr const char* grid_ink = "#d8dee4";

inline std::string number(double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
}

inline std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '&') {
            out += "&amp;";
        } else if (c == '<') {
            out += "&lt;";
        } else if (c == '>') {
            out += "&gt;";
        } else {
            out += c;
        }
    }
    return out;
}

struct letters {
    double size = 12;
    const char* anchor = "start";
    const char* colour = ink;
    bool bold = false;
    int turned = 0;
};

class canvas {
  public:
    canvas(int width, int height, std::string_view title) {
        const std::string w = std::to_string(width);
        const std::string h = std::to_string(height);
        body_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
                "\" viewBox=\"0 0 " + w + " " + h +
                "\" font-family=\"-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\" role=\"img\">\n"
                "<title>" +
                escaped(title) + "</title>\n<rect x=\"0.5\" y=\"0.5\" width=\"" + number(width - 1) +
                "\" height=\"" + number(height - 1) + "\" rx=\"8\" fill=\"#ffffff\" stroke=\"#d0d7de\"/>\n";
        text(20, 30, title, {.size = 17, .bold = true});
    }

    void rect(double x, double y, double width, double height, const std::string& fill, double round = 0) {
        body_ += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
                 "\" height=\"" + number(height) + "\" rx=\"" + number(round) + "\" fill=\"" + fill +
                 "\"/>\n";
    }
    void line(double x1, double y1, double x2, double y2, const std::string& colour, double width = 1,
              const std::string& dashes = "none") {
        body_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" +
                 number(y2) + "\" stroke=\"" + colour + "\" stroke-width=\"" + number(width) +
                 "\" stroke-dasharray=\"" + dashes + "\"/>\n";
    }
    void triangle(double x1, double y1, double x2, double y2, double x3, double y3, const std::string& fill) {
        body_ += "<polygon points=\"" + number(x1) + "," + number(y1) + " " + number(x2) + "," + number(y2) +
                 " " + number(x3) + "," + number(y3) + "\" fill=\"" + fill + "\"/>\n";
    }
    void text(double x, double y, std::string_view words, const letters& how = {}) {
        const std::string turned = how.turned == 0 ? ""
                                                   : " transform=\"rotate(" + std::to_string(how.turned) +
                                                         " " + number(x) + " " + number(y) + ")\"";
        body_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + number(how.size) +
                 "\" text-anchor=\"" + how.anchor + "\" fill=\"" + how.colour + "\"" +
                 (how.bold ? " font-weight=\"600\"" : "") + turned + ">" + escaped(words) + "</text>\n";
    }

    void save(const std::string& path) const {
        std::ofstream file(path);
        file << body_ << "</svg>\n";
        if (!file.flush()) throw std::runtime_error("cannot write " + path);
    }

  private:
    std::string body_;
};

/// Bars in groups: a series has one bar in each group.
struct bar_chart {
    struct series {
        std::string name;
        std::vector<double> values;  // of the groups
    };

    std::string title{};
    std::string note{};  // below the title
    std::string x_axis{};
    std::string y_axis{};
    std::vector<std::string> groups{};
    std::vector<series> all{};
    bool logarithmic = false;
    double reference = 0;  // a dashed line, unless 0

    void save(const std::string& path) const;
};

namespace impl {

// What the height of a bar means.
class scale {
  public:
    explicit scale(const bar_chart& chart) : logarithmic_(chart.logarithmic) {
        double most = chart.reference;
        double least = 1e300;
        for (const auto& s : chart.all) {
            for (const double v : s.values) {
                most = std::max(most, v);
                if (v > 0) least = std::min(least, v);
            }
        }
        if (most <= 0) most = 1;
        if (logarithmic_) {
            low_ = std::floor(std::log10(std::min(least, most)) - 0.1);
            high_ = std::max(std::ceil(std::log10(most)), low_ + 1);
            for (double t = low_; t <= high_; ++t) ticks_.push_back(std::pow(10, t));
            return;
        }
        const double rough = most * 1.08 / 5;
        const double unit = std::pow(10, std::floor(std::log10(rough)));
        double step = unit * 10;
        for (const double f : {5.0, 2.5, 2.0, 1.0}) {
            if (unit * f >= rough) step = unit * f;
        }
        high_ = std::ceil(most * 1.04 / step) * step;
        for (int t = 0; step * t <= high_ * 1.0001; ++t) ticks_.push_back(step * t);
    }

    /// Returns: 0 at the foot, 1 at the top.
    double height(double value) const {
        if (logarithmic_) value = value > 0 ? std::log10(value) : low_;
        return std::clamp((value - low_) / (high_ - low_), 0.0, 1.0);
    }
    const std::vector<double>& ticks() const { return ticks_; }

  private:
    bool logarithmic_;
    double low_ = 0;
    double high_ = 1;
    std::vector<double> ticks_;
};

inline std::string short_number(double value) {
    char text[64];
    if (value >= 9999.5) {
        std::snprintf(text, sizeof text, "%.3gk", value / 1000);
    } else if (value >= 99.95) {
        std::snprintf(text, sizeof text, "%.0f", value);
    } else {
        std::snprintf(text, sizeof text, "%.3g", value);
    }
    return text;
}

}  // namespace impl

inline void bar_chart::save(const std::string& path) const {
    static constexpr const char* colours[] = {"#0969da", "#bc4c00", "#e0823d", "#f2b98a", "#1a7f37"};
    constexpr double left = 78;
    constexpr double right = 840;
    constexpr double top = 104;
    constexpr double foot = 370;
    canvas c(860, 430, title);
    c.text(20, 51, note, {.size = 12.5, .colour = faint_ink});
    double x = left;
    for (std::size_t s = 0; s < all.size(); ++s) {
        c.rect(x, 68, 12, 12, colours[s % std::size(colours)], 2);
        c.text(x + 18, 78.5, all[s].name, {.size = 12.5});
        x += 44 + 6.8 * static_cast<double>(all[s].name.size());
    }

    const impl::scale heights(*this);
    const auto y = [&](double value) { return foot - (foot - top) * heights.height(value); };
    for (const double tick : heights.ticks()) {
        c.line(left, y(tick), right, y(tick), grid_ink);
        c.text(left - 8, y(tick) + 4, impl::short_number(tick), {.anchor = "end", .colour = faint_ink});
    }
    c.text(24, (top + foot) / 2, y_axis + (logarithmic ? " (log scale)" : ""),
           {.size = 12.5, .anchor = "middle", .turned = -90});
    c.text((left + right) / 2, 416, x_axis, {.size = 12.5, .anchor = "middle"});

    const double width = (right - left) / static_cast<double>(groups.size());
    const double bar = std::min(width * 0.84 / static_cast<double>(all.size()), 64.0);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const double middle = left + width * (static_cast<double>(g) + 0.5);
        c.text(middle, foot + 20, groups[g], {.size = 12.5, .anchor = "middle"});
        for (std::size_t s = 0; s < all.size(); ++s) {
            const double from = middle + bar * (static_cast<double>(s) - static_cast<double>(all.size()) / 2);
            const double value = all[s].values[g];
            c.rect(from + 1.5, y(value), bar - 3, foot - y(value), colours[s % std::size(colours)], 1.5);
            c.text(from + bar / 2, y(value) - 4, impl::short_number(value), {.size = 11, .anchor = "middle"});
        }
    }
    c.line(left, foot, right, foot, ink);
    if (reference != 0) c.line(left, y(reference), right, y(reference), ink, 1.2, "5 4");
    c.save(path);
    std::printf("\nChart: %s\n", path.c_str());
}

}  // namespace bench::svg
