# Writes `count` stories from the rules of config/stories.grammar, a story a line, each followed by
# an empty line:
#
#   awk -v count=10 -f config/stories.awk config/stories.grammar
#
# Every awk writes the same bytes: the random numbers are those of Park and Miller, x -> 16807 x
# mod 2^31 - 1 (Communications of the ACM 31, 1988), whose products a double holds exactly.

function draw(below) {
    state = state * 16807 % 2147483647
    return int(state / 2147483647 * below)
}

# Replaces the first {name} until none is left, as what it becomes may have names, too.
function expanded(text,   name) {
    while (match(text, /[{][a-z]+[}]/)) {
        name = substr(text, RSTART + 1, RLENGTH - 2)
        if (!(name in choices)) {
            print "stories.awk: there is no rule \"" name "\"" >"/dev/stderr"
            exit 1
        }
        text = substr(text, 1, RSTART - 1) choice[name, 1 + draw(choices[name])] \
               substr(text, RSTART + RLENGTH)
    }
    return text
}

# A capital letter at the beginning of each sentence.
function capitalized(text,   result) {
    result = toupper(substr(text, 1, 1))
    text = substr(text, 2)
    while (match(text, /([.?!]|[.]") [a-z]/)) {
        result = result substr(text, 1, RSTART + RLENGTH - 2) \
                 toupper(substr(text, RSTART + RLENGTH - 1, 1))
        text = substr(text, RSTART + RLENGTH)
    }
    return result text
}

function rule_end(   at, parts) {
    choices[rule_name] = split(rule, parts, / *\| */)
    for (at = 1; at <= choices[rule_name]; at++)
        choice[rule_name, at] = parts[at]
}

/^(#|$)/ { next }
/^ / { sub(/^ +/, ""); rule = rule " " $0; next }
{
    if (rule_name != "") rule_end()
    rule_name = $1
    rule = $0
    sub(/^[a-z]+ = /, "", rule)
}
END {
    rule_end()
    state = 1
    for (story = 1; story <= count; story++)
        print capitalized(expanded("{story}")) "\n"
}
