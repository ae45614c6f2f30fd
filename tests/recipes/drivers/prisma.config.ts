// Where Prisma finds the schema of the recipe.
import { defineConfig } from "prisma/config";

export default defineConfig({ schema: "schema.prisma" });
