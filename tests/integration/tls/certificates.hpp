// Certificates for the tests, made when they run: a private authority and what it signs,
// in a temporary folder.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <utility>

namespace certificates {

/// A folder that goes with the object.
class scratch_folder {
  public:
    scratch_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "distlock-tls-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
        path_ = name;
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string operator/(const std::string& file) const { return (path_ / file).string(); }

  private:
    std::filesystem::path path_;
};

struct deleter {
    void operator()(EVP_PKEY* k) const noexcept { ::EVP_PKEY_free(k); }
    void operator()(X509* c) const noexcept { ::X509_free(c); }
    void operator()(X509_EXTENSION* e) const noexcept { ::X509_EXTENSION_free(e); }
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
};
template <class T>
using owned = std::unique_ptr<T, deleter>;

inline void must(bool done) {
    if (!done) throw std::runtime_error("making a certificate failed");
}

/// A certificate and its key: as objects, and as files.
struct identity {
    owned<EVP_PKEY> key;
    owned<X509> certificate;
    std::string certificate_file;
    std::string key_file;
};

/// What a certificate says.
struct request {
    std::string file;      ///< name of the files it goes to
    std::string names;     ///< as OpenSSL writes them: "DNS:localhost", "IP:127.0.0.1"
    long from_days = -1;   ///< the first day it is valid, from now
    long until_days = 30;  ///< the last
    std::string usage = "serverAuth";
    bool authority = false;
};

/// Returns: what `wanted` says, signed by `issuer`, or by itself.
inline identity make(const scratch_folder& folder, const request& wanted, const identity* issuer = nullptr) {
    identity made;
    made.certificate_file = folder / (wanted.file + ".crt");
    made.key_file = folder / (wanted.file + ".key");
    made.key.reset(::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
    made.certificate.reset(::X509_new());
    X509* const c = made.certificate.get();
    must(made.key && c != nullptr);

    static long serial = 1000;
    constexpr long day = 24L * 60 * 60;
    const std::string common_name = "distlock test " + wanted.file;
    X509_NAME* const subject = ::X509_get_subject_name(c);
    must(::X509_set_version(c, 2) == 1 && ::ASN1_INTEGER_set(::X509_get_serialNumber(c), ++serial) == 1 &&
         ::X509_gmtime_adj(::X509_getm_notBefore(c), wanted.from_days * day) != nullptr &&
         ::X509_gmtime_adj(::X509_getm_notAfter(c), wanted.until_days * day) != nullptr &&
         ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                      reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                                      0) == 1 &&
         ::X509_set_pubkey(c, made.key.get()) == 1 &&
         ::X509_set_issuer_name(
             c, issuer != nullptr ? ::X509_get_subject_name(issuer->certificate.get()) : subject) == 1);

    const auto extend = [c](int what, const std::string& value) {
        const owned<X509_EXTENSION> extension(::X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str()));
        must(extension && ::X509_add_ext(c, extension.get(), -1) == 1);
    };
    if (wanted.authority) {
        extend(NID_basic_constraints, "critical,CA:TRUE");
        extend(NID_key_usage, "critical,keyCertSign,cRLSign");
    } else {
        extend(NID_basic_constraints, "critical,CA:FALSE");
        extend(NID_ext_key_usage, wanted.usage);
    }
    if (!wanted.names.empty()) extend(NID_subject_alt_name, wanted.names);
    EVP_PKEY* const signer = issuer != nullptr ? issuer->key.get() : made.key.get();
    must(::X509_sign(c, signer, ::EVP_sha256()) > 0);

    const owned<std::FILE> certificate_file(std::fopen(made.certificate_file.c_str(), "w"));
    const owned<std::FILE> key_file(std::fopen(made.key_file.c_str(), "w"));
    must(certificate_file && key_file && ::PEM_write_X509(certificate_file.get(), c) == 1 &&
         ::PEM_write_PrivateKey(key_file.get(), made.key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
    return made;
}

/// Effects: writes `key` to `file`, encrypted.
inline void write_encrypted(EVP_PKEY* key, const std::string& file) {
    const owned<std::FILE> out(std::fopen(file.c_str(), "w"));
    must(out &&
         ::PEM_write_PrivateKey(out.get(), key, ::EVP_aes_128_cbc(),
                                reinterpret_cast<const unsigned char*>("secret"), 6, nullptr, nullptr) == 1);
}

/// Returns: a file with the certificate of `whom` and no other.
inline std::string alone(const scratch_folder& folder, const identity& whom) {
    const std::string file = folder / "alone.crt";
    const owned<std::FILE> out(std::fopen(file.c_str(), "w"));
    must(out && ::PEM_write_X509(out.get(), whom.certificate.get()) == 1);
    return file;
}

/// Effects: appends `certificate` to the certificate file of `to`: what it shows goes on with it.
inline void append(const identity& to, const identity& certificate) {
    const owned<std::FILE> out(std::fopen(to.certificate_file.c_str(), "a"));
    must(out && ::PEM_write_X509(out.get(), certificate.certificate.get()) == 1);
}

/// Effects: makes of `folder` what `openssl rehash` would, with the one certificate.
inline void write_hashed(X509* certificate, const std::string& folder) {
    char name[32];
    std::snprintf(name, sizeof name, "%08lx.0", ::X509_subject_name_hash(certificate));
    std::filesystem::create_directory(folder);
    const owned<std::FILE> out(std::fopen((folder + "/" + name).c_str(), "w"));
    must(out && ::PEM_write_X509(out.get(), certificate) == 1);
}

/// Everything the tests need, made once.
struct set {
    scratch_folder folder;
    identity ca = make(folder, {.file = "ca", .names = {}, .usage = {}, .authority = true});
    identity other_ca = make(folder, {.file = "other_ca", .names = {}, .usage = {}, .authority = true});
    // The six a server may show.
    identity good = make(folder, {.file = "good", .names = "DNS:localhost"}, &ca);
    identity address = make(folder, {.file = "address", .names = "IP:127.0.0.1"}, &ca);
    identity wrong_host = make(folder, {.file = "wrong_host", .names = "DNS:other.example"}, &ca);
    identity wrong_ca = make(folder, {.file = "wrong_ca", .names = "DNS:localhost,IP:127.0.0.1"}, &other_ca);
    identity expired = make(
        folder,
        {.file = "expired", .names = "DNS:localhost,IP:127.0.0.1", .from_days = -30, .until_days = -1}, &ca);
    identity self_signed = make(folder, {.file = "self_signed", .names = "DNS:localhost,IP:127.0.0.1"});
    // What else there is.
    identity wildcards =
        make(folder, {.file = "wildcards", .names = "DNS:*.wild.example,DNS:part*.label.example"}, &ca);
    identity ipv6 = make(folder, {.file = "ipv6", .names = "IP:fe80::1"}, &ca);
    identity address_as_name = make(folder, {.file = "address_as_name", .names = "DNS:127.0.0.1"}, &ca);
    identity future = make(folder, {.file = "future", .names = "DNS:localhost", .from_days = 5}, &ca);
    identity for_clients = make(
        folder, {.file = "for_clients", .names = "DNS:localhost,IP:127.0.0.1", .usage = "clientAuth"}, &ca);
    identity foreign_client =
        make(folder, {.file = "foreign_client", .names = "DNS:client", .usage = "clientAuth"}, &other_ca);

    // Of an authority that the root knows, and that nobody else need know: it goes with the certificate.
    identity intermediate =
        make(folder, {.file = "intermediate", .names = {}, .usage = {}, .authority = true}, &ca);
    identity under_intermediate = make(
        folder, {.file = "under_intermediate", .names = "DNS:localhost,IP:127.0.0.1", .usage = "clientAuth"},
        &intermediate);

    set() { append(under_intermediate, intermediate); }

    static const set& get() {
        static const set made;
        return made;
    }
};

}  // namespace certificates
