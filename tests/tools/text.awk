# Prints BYTES bytes (awk -v bytes=N) of a text that depends on nothing: all printable characters, then lines of words
# from a small vocabulary, the first of which are the most frequent.
function below(bound) {
    state = state * 16807 % 2147483647
    return int(state / 2147483647 * bound)
}
BEGIN {
    state = 1337
    for (i = 32; i < 127; i++)
        line = line sprintf("%c", i)
    for (i = 0; i < 80; i++)
        for (k = below(6); k >= 0; k--)
            word[i] = word[i] substr("etaoinshrdlucmfwypvbgk", 1 + below(22), 1)
    while (bytes > 0) {
        while (length(line) < 60)
            line = line word[int(below(80) * below(80) / 80)] (below(8) ? " " : ", ")
        line = line "\n"
        printf "%s", substr(line, 1, bytes)
        bytes -= length(line)
        line = ""
    }
}
