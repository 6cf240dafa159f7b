"""Functions that fail, in a file of their own so that line numbers are easy to tell."""


def inner(x, how):
    y = x * 2
    if how == "raise":
        raise ValueError("bad", 3)
    if how == "attribute":
        return y.no_such_thing
    if how == "operator":
        return y @ y[:1]
    return y


def outer(x, how):
    try:
        return inner(x, how) + 1
    finally:
        x.sum()


def chained(x, how):
    try:
        inner(x, how)
    except Exception as e:
        raise KeyError("outer") from e


def implicit(x, how):
    try:
        inner(x, how)
    except Exception:
        {}["missing"]


def again(x, how):
    try:
        return inner(x, how)
    except ValueError:
        y = x + 1
        raise


class Guard:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


def managed(x, how):
    with Guard():
        return [inner(x, how) for _ in range(2)]


def recursive(x, n):
    if n == 0:
        return x
    return recursive(x, n - 1) + 1


def endless(x):
    return endless(x + 1)
