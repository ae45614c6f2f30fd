// Drives the client of the recipe for Node.js: `take SEQUENCE COUNT` prints ids.
import { take } from "./tickets.mjs";

const [, sequence, count] = process.argv.slice(2);
for (const id of await take(sequence, Number(count))) console.log(String(id));
