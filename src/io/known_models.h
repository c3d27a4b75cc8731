/* The shapes of known models by their names on Hugging Face's Hub, so that a plan needs no
 * download. */
#ifndef GPT_TRAIN_IO_KNOWN_MODELS_H
#define GPT_TRAIN_IO_KNOWN_MODELS_H

#include "model/model.h"

struct known_model {
    const char *name;
    bool chat; /* its folder has a chat template */
    struct model_config config;
};

/* Finds a model of the table by its name.  Reads no file. */
bool known_model_find(const char *name, struct known_model *out);
/* Writes up to three names that a mistyped one, with or without its owner, most likely meant,
 * separated by commas; "" if none is similar.  Returns `text`. */
#define KNOWN_MODELS_TEXT_MAX 128
char *known_models_near(char text[static KNOWN_MODELS_TEXT_MAX], const char *name);
/* Returns the name of the chat model of the table that has the number of parameters nearest to
 * `parameters`. */
const char *known_model_of_size(double parameters);

#endif
