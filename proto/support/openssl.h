// OpenSSL's objects with owners. Where it is linked: proto/support and tools/pki.
#ifndef CXLPOOL_PROTO_SUPPORT_OPENSSL_H_
#define CXLPOOL_PROTO_SUPPORT_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace cxlpool::openssl {

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

// Reads `text`, which must outlive it.
inline Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// For PEM_read_bio_PrivateKey. Never asks at the terminal: an encrypted key is an error.
inline int NoPassword(char*, int, int, void*) { return -1; }

// OpenSSL keeps errors by thread: however a function that has one of these ends, what is left of
// its errors is not taken for the next call's.
struct ForgetErrors {
  ~ForgetErrors() { ERR_clear_error(); }
};

}  // namespace cxlpool::openssl

#endif  // CXLPOOL_PROTO_SUPPORT_OPENSSL_H_
