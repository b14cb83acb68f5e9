"""Operations shared by all gateway protocols: publish, receive, settle, administer."""
