-- Begins the store where it is empty. KEYS: when it was begun. Answers that.

return began(KEYS[1])
