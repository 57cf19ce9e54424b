// A part of a program that is compiled without exceptions, beside parts that have them.
#ifndef CXLPOOL_LIBPOOL_SRC_WITHOUT_EXCEPTIONS_FOR_TEST_H_
#define CXLPOOL_LIBPOOL_SRC_WITHOUT_EXCEPTIONS_FOR_TEST_H_

namespace cxlpool {

// The value of an Error whose message is "none there": says it and aborts.
int ValueOfAnError();

}  // namespace cxlpool

#endif  // CXLPOOL_LIBPOOL_SRC_WITHOUT_EXCEPTIONS_FOR_TEST_H_
