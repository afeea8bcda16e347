/* Sizes and settings of the model in model.c; those with #ifndef can be set for a build. */
#include <stdint.h>

/* Bytes of SRAM: with less, weights are read from model.c for each token. */
#ifndef STORY_ARENA
#define STORY_ARENA {arena}
#endif
#define STORY_LAYERS {layers}
#ifndef STORY_TEMPERATURE
#define STORY_TEMPERATURE {temperature} /* in 256ths */
#endif
#ifndef STORY_TOP_K
#define STORY_TOP_K {chosen.top_k}
#endif
#ifndef STORY_TOKENS
#define STORY_TOKENS {chosen.tokens}
#endif
#ifndef STORY_SEED
#define STORY_SEED {chosen.seed}
#endif
extern const uint32_t story_model[{model_words}], story_vocabulary[{vocabulary_words}];
