"""Functions that a configuration names, in a module of their own."""


def plain(x: int, y: int = 1) -> int:
    """Add."""
    return x + y


class Base:
    """Methods of every kind."""

    def method(self, x: int) -> tuple[object, int]:
        """Return what it was called on."""
        return self, x

    @classmethod
    def of_class(cls, x: int) -> tuple[object, int]:
        """Return the class."""
        return cls, x

    @staticmethod
    def static(x: int) -> int:
        """Return the argument."""
        return x


class Child(Base):
    """Inherit everything."""


not_callable = 3
