/* The marks in a conversation's rendered text, which chat_render.c writes and chat.c reads. */
#ifndef GPT_TRAIN_DATA_CHAT_MARK_H
#define GPT_TRAIN_DATA_CHAT_MARK_H

#define CHAT_MARK "\xff" /* a digit follows for a special token, or one of these */
enum { CHAT_MARK_COUNT = '+', CHAT_MARK_IGNORE = '-', CHAT_MARK_END_OF_TEXT = 'e' };

#endif
