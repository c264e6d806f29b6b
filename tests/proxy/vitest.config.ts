import { defineConfig } from "vitest/config"

// Proxies and servers start and stop.
export default defineConfig({
  test: { include: ["*.test.ts"], testTimeout: 60_000, hookTimeout: 60_000 },
})
