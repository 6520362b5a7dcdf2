// What a library was compiled from, so that one that came with a wheel is not used with other sources (build.py).
#ifndef RAMET_SOURCES
#define RAMET_SOURCES ""
#endif

extern "C" __attribute__((used)) const char ramet_identity[] = "ramet kernels of sources " RAMET_SOURCES;
