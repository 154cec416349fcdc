"""The reference scheduler: what SGLang does with sessions, queues, aborts and timeouts, per version era."""
