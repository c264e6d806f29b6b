import { defineConfig } from "vitest/config"

// Servers start again, and browsers wait before they connect again.
export default defineConfig({
  test: { include: ["*.test.ts"], testTimeout: 60_000, hookTimeout: 60_000 },
})
