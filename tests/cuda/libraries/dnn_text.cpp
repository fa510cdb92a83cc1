/* Descriptors as text, and back: d(type name:attribute type:count=bytes in hexadecimal;...), where
 * descriptors stand for themselves. */

#include "dnn.h"

#include <cstdlib>

namespace dnn
{
namespace
{

const char digits[] = "0123456789abcdef";

/* Reads on in a text; good turns false at the first thing that is not as it should be. */
struct reader {
    const char *at;
    bool good;
};

bool take(reader &r, char c)
{
    if (!r.good || *r.at != c)
        return false;
    r.at++;
    return true;
}

void need(reader &r, char c)
{
    r.good = take(r, c);
}

int64_t read_number(reader &r)
{
    char *end;
    const int64_t x = strtoll(r.at, &end, 10);
    r.good = r.good && end != r.at;
    r.at = end;
    return x;
}

int digit(reader &r)
{
    const char *found = *r.at ? strchr(digits, *r.at) : nullptr;
    r.good = r.good && found;
    if (!r.good)
        return 0;
    r.at++;
    return (int)(found - digits);
}

std::shared_ptr<body> read_body(reader &r);

void read_value(reader &r, body &b)
{
    const auto name = (cudnnBackendAttributeName_t)read_number(r);
    need(r, ':');
    const auto type = (cudnnBackendAttributeType_t)read_number(r);
    need(r, ':');
    const int64_t count = read_number(r);
    need(r, '=');
    std::vector<ref> refs;
    std::vector<char> bytes;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count && r.good; i++)
            refs.push_back(read_body(r));
    else
        for (size_t i = 0; i < count * element_bytes(type) && r.good; i++) {
            const int high = digit(r);
            bytes.push_back((char)(high << 4 | digit(r)));
        }
    need(r, ';');
    b.values[name] = {type, count, bytes, refs};
}

/* Finalized, but for the outermost. */
std::shared_ptr<body> read_body(reader &r)
{
    auto b = std::make_shared<body>();
    need(r, 'd');
    need(r, '(');
    b->type = (cudnnBackendDescriptorType_t)read_number(r);
    need(r, ' ');
    while (r.good && *r.at != ')')
        read_value(r, *b);
    need(r, ')');
    if (r.good && b->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        r.good = finalize(*b) == CUDNN_STATUS_SUCCESS;
    return b;
}

} /* namespace */

std::string to_text(const body &b)
{
    std::string s = "d(" + std::to_string(b.type) + " ";
    for (const auto &v : b.values) {
        if (find_rule(b.type, v.first)->flags & LIBRARY)
            continue;
        s += std::to_string(v.first) + ":" + std::to_string(v.second.type) + ":"
             + std::to_string(v.second.count) + "=";
        for (const ref &r : v.second.refs)
            s += to_text(*r);
        for (unsigned char c : v.second.bytes)
            s += {digits[c >> 4], digits[c & 15]};
        s += ";";
    }
    return s + ")";
}

std::shared_ptr<body> from_text(const std::string &text)
{
    reader r = {text.c_str(), true};
    std::shared_ptr<body> b = read_body(r);
    return r.good && !*r.at ? b : nullptr;
}

} /* namespace dnn */
