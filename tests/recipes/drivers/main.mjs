// Drives the recipe for Prisma: `take SEQUENCE COUNT` prints ids; `store COUNT` stores so many rows in the SQLite database
// DATABASE and prints the ids that are stored there.
import { PrismaLibSql } from "@prisma/adapter-libsql";
import { PrismaClient } from "./generated/index.js";
import { idsAsStrings, withTickets } from "./photos.mjs";
import { take } from "./tickets.mjs";

async function store(count) {
  const adapter = new PrismaLibSql({ url: `file:${process.env.DATABASE}`, intMode: "bigint" });
  const plain = new PrismaClient({ adapter });
  await plain.$executeRawUnsafe("CREATE TABLE photos (id BIGINT NOT NULL PRIMARY KEY, title TEXT NOT NULL)");
  await plain.photo.create({ data: { title: "without an id" } }).then(
    () => { throw new Error("the database has taken a row without an id"); },
    (error) => { if (!/null/i.test(error.message)) throw error; },
  );
  const prisma = plain.$extends(withTickets);
  const alone = await prisma.photo.create({ data: { title: "alone" } });
  await prisma.photo.createMany({ data: Array.from({ length: count - 1 }, () => ({ title: "together" })) });
  const stored = await prisma.$queryRawUnsafe("SELECT CAST(id AS TEXT) AS id FROM photos");
  const read = JSON.parse(JSON.stringify(await prisma.photo.findMany(), idsAsStrings));
  const ids = stored.map((row) => row.id);
  if (String(read.map((row) => row.id).sort()) !== String([...ids].sort())) throw new Error(JSON.stringify({ read, ids }));
  if (!ids.includes(String(alone.id))) throw new Error(`create returned ${alone.id}`);
  await plain.$disconnect();
  return ids;
}

const [verb, ...rest] = process.argv.slice(2);
const ids = verb === "take" ? await take(rest[0], Number(rest[1])) : await store(Number(rest[0]));
for (const id of ids) console.log(String(id));
