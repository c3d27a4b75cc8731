/* Asks the page's planner as the page does, without a browser: node fit_page.js FIT_HTML QUESTIONS
 *
 * QUESTIONS is a JSON array of {configuration, message, card, now}.  Prints a JSON array of the planner's answers.  The
 * planner and the function that calls it are taken from the page itself.
 */
"use strict";
const fs = require("fs"), zlib = require("zlib");
const page = fs.readFileSync(process.argv[2], "utf8");
const module_ = zlib.inflateRawSync(Buffer.from(/const MODULE = "([^"]*)"/.exec(page)[1], "base64"));
const planner = /\nfunction planner\(\) \{\n[^]*?\n\}\n/.exec(page)[0];
const answers = [];
const self = { postMessage: answer => answers.push(answer) };
new Function("self", planner + "planner();")(self);
self.onmessage({ data: { module: module_ } });
for (const question of JSON.parse(fs.readFileSync(process.argv[3], "utf8")))
  self.onmessage({ data: question });
process.stdout.write(JSON.stringify(answers));
