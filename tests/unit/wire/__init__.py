"""Tests of `ottla.wire`; a package, so that its helpers can be shared."""
