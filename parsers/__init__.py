"""From the bytes of a log to the evidence table. States facts, judges nothing."""
