"""The models of SQLAlchemy's tests, for any Tickets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column, relationship

from ticketd_client import AsyncTickets, Tickets
from ticketd_client.sqlalchemy import TicketDefault


class Models(NamedTuple):
    """The classes, of a metadata of their own."""

    Base: Any
    Album: Any
    Photo: Any
    Panorama: Any
    Note: Any


def make_models(tickets: Tickets | AsyncTickets | Callable[[], Any]) -> Models:
    """A model, one that refers to it, one that inherits from that one, and a dataclass with the key from a mixin."""

    class Base(DeclarativeBase):
        pass

    class Album(Base):
        __tablename__ = "albums"
        id = mapped_column(BigInteger, default=TicketDefault(tickets, "groups"), primary_key=True)
        title: Mapped[str] = mapped_column(String(100))
        photos = relationship("Photo", back_populates="album")

    class Photo(Base):
        __tablename__ = "photos"
        id = mapped_column(BigInteger, default=TicketDefault(tickets, "photos"), primary_key=True)
        title: Mapped[str] = mapped_column(String(100))
        kind: Mapped[str] = mapped_column(String(20), default="photo")
        album_id = mapped_column(ForeignKey("albums.id"))
        album = relationship("Album", back_populates="photos")
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "photo"}

    class Panorama(Photo):
        __tablename__ = "panoramas"
        id = mapped_column(ForeignKey("photos.id"), primary_key=True)
        degrees: Mapped[int]
        __mapper_args__ = {"polymorphic_identity": "panorama"}

    class Numbered(MappedAsDataclass):
        id: Mapped[int] = mapped_column(
            BigInteger, insert_default=TicketDefault(tickets, "offline_tasks"), primary_key=True, init=False
        )

    class Note(Numbered, Base):
        __tablename__ = "notes"
        text: Mapped[str] = mapped_column(String(100))

    return Models(Base, Album, Photo, Panorama, Note)
