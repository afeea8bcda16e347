/* The files of FORMAT.md in words, of which both consist and some of which the runtime reads in place. */
#include "model.h"

const uint32_t story_model[] = {{ {model} }};
const uint32_t story_vocabulary[] = {{ {vocabulary} }};
