// Type a line in the serial monitor: the story continues it. An empty line begins with "Once upon a time".
#include <story.h>

static int print(uint32_t token, const uint8_t *bytes, size_t size, void *where) {
  (void)token;
  (void)where;
  Serial.write(bytes, size);
  return !Serial.available();  // a key ends the story
}

void setup() {
  Serial.begin(115200);
  while (!Serial) {
  }
  const char *reason = story_open();
  if (reason) {
    Serial.println(reason);
    for (;;) {
    }
  }
}

void loop() {
  static char line[STORY_PROMPT + 1];
  static size_t size;
  static struct story_settings settings = story_defaults;
  if (!Serial.available())
    return;
  int key = Serial.read();
  if (key != '\n') {
    if (key != '\r' && size < STORY_PROMPT)
      line[size++] = (char)key;
    return;
  }
  line[size] = 0;
  settings.seed = micros();  // another story for each line
  const char *prompt = size ? line : "Once upon a time";
  Serial.print(prompt);
  story_tell(prompt, &settings, print, nullptr);
  Serial.println();
  size = 0;
}
