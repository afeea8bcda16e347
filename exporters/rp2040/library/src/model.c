/* The files of FORMAT.md, both of whole words; the runtime reads parts of them in place. */
#include "model.h"

const uint32_t story_model[] = {{ {model} }};
const uint32_t story_vocabulary[] = {{ {vocabulary} }};
